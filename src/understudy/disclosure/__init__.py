"""What a synthetic table discloses about the rows it was made from. Not private: reads all real rows."""
