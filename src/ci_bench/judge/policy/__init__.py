"""From verdicts to a judgement: rules, headline, causes."""
