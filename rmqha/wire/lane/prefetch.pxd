# Memory that is wanted soon.

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void* at) noexcept nogil
