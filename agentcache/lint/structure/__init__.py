"""What the rules about structure share: tools, settings and histories that are not what they were."""
