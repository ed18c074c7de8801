"""Expensive calculations: engines, the processes they run in, and queues of them."""
