"""What several rooms of this package share. Nothing here is for other programs."""
