"""Active-learning search for the structure of lowest energy."""
