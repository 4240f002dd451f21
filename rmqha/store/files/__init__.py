"""What lies on the disk: mapped log files, their pages and blocks, small tables, the lock."""
