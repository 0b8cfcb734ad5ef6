"""Starting, speaking to and ending the processes of candidates."""
