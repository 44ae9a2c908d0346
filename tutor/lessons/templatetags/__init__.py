"""What templates of any app may ask of the lessons."""
