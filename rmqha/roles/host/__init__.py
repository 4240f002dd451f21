"""What a process is to the machine that it runs on: to its service manager, and to its memory."""
