"""What comes in at all: connections and their deadlines, keys, origins, and the size and shape of bodies."""
