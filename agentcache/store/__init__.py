"""A page store that several servers share: what stands behind it, how a page looks in it, when it is asked."""
