"""What the policy makes of a comparison: floors, findings, the headline, the exit code."""
