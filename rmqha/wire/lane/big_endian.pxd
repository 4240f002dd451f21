# Numbers as they stand in records and frames: read from what a client sent, with its bounds
# checked, and written where the caller has made room for them.
#
# These are compiled into each module that takes them: there is nothing to import when rmqha runs.

cdef inline Py_ssize_t int4(const unsigned char[::1] view, Py_ssize_t at) except? -1:
    cdef unsigned int value = (
        <unsigned int>view[at] << 24
        | <unsigned int>view[at + 1] << 16
        | <unsigned int>view[at + 2] << 8
        | <unsigned int>view[at + 3]
    )
    return <int>value


cdef inline long long int8(const unsigned char[::1] view, Py_ssize_t at) except? -1:
    return <long long>int4(view, at) << 32 | <unsigned int>int4(view, at + 4)


# The same where the caller knows that they are there.

cdef inline long long at2(const unsigned char* at) noexcept nogil:
    return <short>(at[0] << 8 | at[1])


cdef inline long long at4(const unsigned char* at) noexcept nogil:
    return <int>(
        <unsigned int>at[0] << 24
        | <unsigned int>at[1] << 16
        | <unsigned int>at[2] << 8
        | <unsigned int>at[3]
    )


cdef inline long long at8(const unsigned char* at) noexcept nogil:
    return at4(at) << 32 | <unsigned int>at4(at + 4)


cdef inline unsigned long long low8(const unsigned char* at) noexcept nogil:
    # Eight bytes as one number, the first one lowest.
    return (
        <unsigned long long>at[0]
        | <unsigned long long>at[1] << 8
        | <unsigned long long>at[2] << 16
        | <unsigned long long>at[3] << 24
        | <unsigned long long>at[4] << 32
        | <unsigned long long>at[5] << 40
        | <unsigned long long>at[6] << 48
        | <unsigned long long>at[7] << 56
    )


ctypedef unsigned int (*crc_type)(
    unsigned int, const unsigned char*, unsigned long long
) noexcept nogil

cdef inline unsigned int crc_at(
    size_t function, const unsigned char* at, long long size
) noexcept nogil:
    # By the address that native_crc.py found.
    return (<crc_type>function)(0, at, size)


cdef inline void put4(unsigned char* to, long long value) noexcept nogil:
    to[0] = <unsigned char>(value >> 24)
    to[1] = <unsigned char>(value >> 16)
    to[2] = <unsigned char>(value >> 8)
    to[3] = <unsigned char>value


cdef inline void put8(unsigned char* to, long long value) noexcept nogil:
    put4(to, value >> 32)
    put4(to + 4, value)


cdef inline unsigned char* hex16(unsigned char* to, long long value) noexcept nogil:
    # The digits of an offset in a message's id; returns where they end.
    cdef int i, digit
    for i in range(16):
        digit = <int>(value >> (60 - 4 * i)) & 15
        to[i] = <unsigned char>(digit + (48 if digit < 10 else 55))
    return to + 16
