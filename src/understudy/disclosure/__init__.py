"""What a synthetic table discloses about the rows that it was made from. Not private: it reads all real rows."""
