"""The prototypes of kernels.h, so that a call that does not fit is an error and not a crash."""

from __future__ import annotations

import ctypes

_INT, _SIZE, _REAL, _DATA = ctypes.c_int, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
FLAG = ctypes.POINTER(ctypes.c_int)
_HINGES = [_SIZE, _DATA, _SIZE, _DATA, _DATA, _DATA, _REAL]
_PRODUCT = [_SIZE] * 6 + [_DATA] * 4 + [FLAG]
_RAGGED = [_SIZE] * 5 + [_DATA] * 5 + [FLAG]
_Prototypes = dict[str, tuple[type | None, list[type]]]
_OF_EACH_PRECISION: _Prototypes = {
    "nonzero_blocks": (_SIZE, [_SIZE, _SIZE, _DATA, _DATA]),
    "forward": (_INT, _PRODUCT),
    "adjoint": (_INT, _PRODUCT),
    "ragged_forward": (_INT, _RAGGED),
    "ragged_adjoint": (_INT, _RAGGED),
    "solve_system": (_SIZE, [_SIZE] * 5 + [_DATA] * 13 + [_REAL] * 2 + [_SIZE, FLAG]),
}
PROTOTYPES: _Prototypes = {
    "kernels_version": (ctypes.c_uint64, []),
    "project_blocks": (
        _INT,
        [_SIZE] * 2
        + [_DATA] * 6
        + [_SIZE]
        + [_DATA] * 4
        + [_SIZE]
        + [_DATA] * 3
        + [_SIZE]
        + [_DATA] * 6
        + [_REAL] * 2
        + [_SIZE, _INT, FLAG],
    ),
    "orthonormal_rows": (
        _INT,
        [_SIZE, _DATA, _SIZE, _SIZE, _DATA, _DATA, _DATA, _INT, _DATA, FLAG],
    ),
    "look_at_blocks": (
        None,
        [_SIZE] * 2 + [_DATA] * 4 + [_SIZE] + [_DATA] * 5 + [_REAL] * 4 + [_DATA] * 2 + [FLAG],
    ),
    "hinge_coefficients": (None, [*_HINGES, _DATA, _DATA, FLAG]),
    "hinge_divergence": (None, [*_HINGES, _DATA, _DATA, _DATA, FLAG]),
    "logistic_minimum": (None, [_SIZE] * 2 + [_DATA] * 7 + [FLAG]),
    "logistic_dual": (None, [_SIZE] * 3 + [_DATA] * 5),
    "branch_cone": (
        _INT,
        [_SIZE] * 3 + [_DATA] * 2 + [_REAL] * 4 + [_SIZE] * 2 + [_DATA] * 6 + [FLAG],
    ),
    "list_cones": (_SIZE, [_DATA] * 3 + [_REAL, _DATA]),
    "pack_bits": (None, [_SIZE] * 4 + [_DATA, _DATA, FLAG]),
    "transpose_bits": (None, [_SIZE] * 4 + [_DATA, _DATA, FLAG]),
    **{
        f"{kernel}_{precision}": prototype
        for precision in ("float", "double")
        for kernel, prototype in _OF_EACH_PRECISION.items()
    },
}
