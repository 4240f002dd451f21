"""Two masters, two slaves and a name server on this machine, as C{conf/2m-2s-sync} has them."""
