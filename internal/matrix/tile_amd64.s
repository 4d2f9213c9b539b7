#include "textflag.h"

// One row of the tile: two sums of eight lanes. VMULPS and VADDPS rather than VFMADD, see matrix.go.
#define ROW(addr, sum0, sum1) \
	VBROADCASTSS addr, Y10      \
	VMULPS       Y8, Y10, Y11   \
	VMULPS       Y9, Y10, Y12   \
	VADDPS       Y11, sum0, sum0 \
	VADDPS       Y12, sum1, sum1

// VMAXPS returns its last source (the first written here) on NaN and on equal zeros: the sum.
#define STORE(sum0, sum1) \
	VMAXPS  sum0, Y15, sum0 \
	VMAXPS  sum1, Y15, sum1 \
	VMOVUPS sum0, (DX)      \
	VMOVUPS sum1, 32(DX)

// func tile4x16AVX(k int, a *float32, aRow, aCol int, b *float32, ldb int, init *float32, initStride int, low float32, c *float32, ldc int)
// Strides are in bytes.
TEXT ·tile4x16AVX(SB), NOSPLIT, $0-88
	MOVQ         k+0(FP), CX
	MOVQ         a+8(FP), SI
	MOVQ         aRow+16(FP), R8
	MOVQ         aCol+24(FP), R9
	MOVQ         b+32(FP), DI
	MOVQ         ldb+40(FP), R10
	MOVQ         init+48(FP), AX
	MOVQ         initStride+56(FP), BX
	VBROADCASTSS low+64(FP), Y15
	MOVQ         c+72(FP), DX
	MOVQ         ldc+80(FP), R11

	VMOVUPS (AX), Y0
	VMOVUPS 32(AX), Y1
	ADDQ    BX, AX
	VMOVUPS (AX), Y2
	VMOVUPS 32(AX), Y3
	ADDQ    BX, AX
	VMOVUPS (AX), Y4
	VMOVUPS 32(AX), Y5
	ADDQ    BX, AX
	VMOVUPS (AX), Y6
	VMOVUPS 32(AX), Y7

	LEAQ (SI)(R8*1), AX
	LEAQ (AX)(R8*1), BX
	LEAQ (BX)(R8*1), R8
	XORQ R12, R12

loop4:
	VMOVUPS (DI), Y8
	VMOVUPS 32(DI), Y9
	ROW((SI)(R12*1), Y0, Y1)
	ROW((AX)(R12*1), Y2, Y3)
	ROW((BX)(R12*1), Y4, Y5)
	ROW((R8)(R12*1), Y6, Y7)
	ADDQ    R9, R12
	ADDQ    R10, DI
	DECQ    CX
	JNZ     loop4

	STORE(Y0, Y1)
	ADDQ R11, DX
	STORE(Y2, Y3)
	ADDQ R11, DX
	STORE(Y4, Y5)
	ADDQ R11, DX
	STORE(Y6, Y7)
	VZEROUPPER
	RET

// func tile1x16AVX(k int, a *float32, aCol int, b *float32, ldb int, init *float32, low float32, c *float32)
TEXT ·tile1x16AVX(SB), NOSPLIT, $0-64
	MOVQ         k+0(FP), CX
	MOVQ         a+8(FP), SI
	MOVQ         aCol+16(FP), R9
	MOVQ         b+24(FP), DI
	MOVQ         ldb+32(FP), R10
	MOVQ         init+40(FP), AX
	VBROADCASTSS low+48(FP), Y15
	MOVQ         c+56(FP), DX

	VMOVUPS (AX), Y0
	VMOVUPS 32(AX), Y1

loop1:
	VMOVUPS (DI), Y8
	VMOVUPS 32(DI), Y9
	ROW((SI), Y0, Y1)
	ADDQ    R9, SI
	ADDQ    R10, DI
	DECQ    CX
	JNZ     loop1

	STORE(Y0, Y1)
	VZEROUPPER
	RET
