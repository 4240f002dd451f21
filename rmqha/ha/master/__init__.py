"""The sending side: slaves' connections, what each of them holds, and writes that wait for them."""
