"""The declaration of each flag, and the settings that flags become."""
