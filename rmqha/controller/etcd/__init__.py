"""A set that etcd coordinates, through etcd's JSON gateway."""
