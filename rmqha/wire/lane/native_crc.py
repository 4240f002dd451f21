"""The C function under isal's C{crc32}, for compiled loops: a call of it takes a tenth of one
through the interpreter.

ISA-L documents C{crc32_gzip_refl}; that isal's extension module lets others link to it is luck,
so we ask for it and compare one result.
"""

from __future__ import annotations

import ctypes

from isal import isal_zlib


def _address() -> int:
    try:
        function = ctypes.CDLL(isal_zlib.__file__).crc32_gzip_refl
    except (OSError, AttributeError):
        return 0
    function.restype, function.argtypes = (
        ctypes.c_uint32,
        [ctypes.c_uint32, ctypes.c_char_p, ctypes.c_uint64],
    )
    if function(0, b"hello", 5) != isal_zlib.crc32(b"hello"):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


CRC = _address()
"""Where it is; 0 if it is not to be had."""
