"""What going back is worth: failing runs of this project with and without it, against their twins; and healthy ones."""
