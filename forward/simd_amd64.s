#include "textflag.h"

DATA ·lanes<>+0(SB)/4, $0
DATA ·lanes<>+4(SB)/4, $1
DATA ·lanes<>+8(SB)/4, $2
DATA ·lanes<>+12(SB)/4, $3
DATA ·lanes<>+16(SB)/4, $4
DATA ·lanes<>+20(SB)/4, $5
DATA ·lanes<>+24(SB)/4, $6
DATA ·lanes<>+28(SB)/4, $7
GLOBL ·lanes<>(SB), RODATA|NOPTR, $32

DATA ·philox<>+0(SB)/4, $0xD2511F53
DATA ·philox<>+4(SB)/4, $0xCD9E8D57
DATA ·philox<>+8(SB)/4, $0x9E3779B9
DATA ·philox<>+12(SB)/4, $0xBB67AE85
DATA ·philox<>+16(SB)/4, $31
DATA ·philox<>+20(SB)/4, $1
GLOBL ·philox<>(SB), RODATA|NOPTR, $24

// The products of eight lanes of x with a factor: low and high halves. x and Y10, Y11 are spent.
#define PRODUCT(x, factor, low, high) \
	VPMULUDQ factor, x, Y10 \
	VPSRLQ   $32, x, x      \
	VPMULUDQ factor, x, Y11 \
	VPSLLQ   $32, Y11, low  \
	VPBLENDD $0x55, Y10, low, low \
	VPSRLQ   $32, Y10, high \
	VPBLENDD $0xAA, Y11, high, high

// func philox8AVX2(words *[32]uint32, counter *[4]uint32, key *[2]uint32)
// Eight counters one after the other in the first word, a lane each: Y0 to Y3 are the words of the state.
TEXT ·philox8AVX2(SB), NOSPLIT, $0-24
	MOVQ words+0(FP), DI
	MOVQ counter+8(FP), SI
	MOVQ key+16(FP), DX

	VPBROADCASTD (SI), Y0
	VPADDD       ·lanes<>(SB), Y0, Y0
	VPBROADCASTD 4(SI), Y1
	VPBROADCASTD 8(SI), Y2
	VPBROADCASTD 12(SI), Y3
	VPBROADCASTD (DX), Y4
	VPBROADCASTD 4(DX), Y5
	VPBROADCASTD ·philox<>+0(SB), Y6
	VPBROADCASTD ·philox<>+4(SB), Y7
	VPBROADCASTD ·philox<>+8(SB), Y8
	VPBROADCASTD ·philox<>+12(SB), Y9
	MOVQ         $10, CX

round:
	PRODUCT(Y0, Y6, Y12, Y13)
	PRODUCT(Y2, Y7, Y14, Y15)
	VPXOR   Y1, Y15, Y0
	VPXOR   Y4, Y0, Y0
	VMOVDQA Y14, Y1
	VPXOR   Y3, Y13, Y2
	VPXOR   Y5, Y2, Y2
	VMOVDQA Y12, Y3
	VPADDD  Y8, Y4, Y4
	VPADDD  Y9, Y5, Y5
	DECQ    CX
	JNZ     round

	// From a word of eight blocks to the four words of a block.
	VPUNPCKLDQ  Y1, Y0, Y4
	VPUNPCKHDQ  Y1, Y0, Y5
	VPUNPCKLDQ  Y3, Y2, Y6
	VPUNPCKHDQ  Y3, Y2, Y7
	VPUNPCKLQDQ Y6, Y4, Y0 // blocks 0 and 4
	VPUNPCKHQDQ Y6, Y4, Y1 // 1 and 5
	VPUNPCKLQDQ Y7, Y5, Y2 // 2 and 6
	VPUNPCKHQDQ Y7, Y5, Y3 // 3 and 7
	VPERM2I128  $0x20, Y1, Y0, Y4
	VPERM2I128  $0x20, Y3, Y2, Y5
	VPERM2I128  $0x31, Y1, Y0, Y6
	VPERM2I128  $0x31, Y3, Y2, Y7
	VMOVDQU     Y4, (DI)
	VMOVDQU     Y5, 32(DI)
	VMOVDQU     Y6, 64(DI)
	VMOVDQU     Y7, 96(DI)
	VZEROUPPER
	RET

// Eight entries: the sign bit of a lane is its entry's bit, the one below keeps the lane from being zero.
#define SIGNS(shifts, offset) \
	VPSLLVD shifts, Y5, Y6 \
	VPOR    Y7, Y6, Y6     \
	VMOVDQU offset(BX), Y8 \
	VPSIGND Y6, Y8, Y6     \
	VPADDD  offset(DI), Y6, Y6 \
	VMOVDQU Y6, offset(DI)

// func addRowsAVX2(w *int32, words *[32]uint32, ring *int32, from *[8]uint32)
TEXT ·addRowsAVX2(SB), NOSPLIT, $0-32
	MOVQ         w+0(FP), DI
	MOVQ         words+8(FP), SI
	MOVQ         ring+16(FP), R8
	MOVQ         from+24(FP), R9
	VPBROADCASTD ·philox<>+20(SB), Y7
	VPBROADCASTD ·philox<>+16(SB), Y0
	VPSUBD       ·lanes<>(SB), Y0, Y0 // 31 to 24: the first byte's bits go to the top
	VPSLLD       $3, Y7, Y4
	VPSUBD       Y4, Y0, Y1
	VPSUBD       Y4, Y1, Y2
	VPSUBD       Y4, Y2, Y3
	MOVQ         $8, CX

row:
	MOVL (R9), AX
	LEAQ (R8)(AX*4), BX
	MOVQ $4, DX

word:
	VPBROADCASTD (SI), Y5
	SIGNS(Y0, 0)
	SIGNS(Y1, 32)
	SIGNS(Y2, 64)
	SIGNS(Y3, 96)
	ADDQ $4, SI
	ADDQ $128, DI
	ADDQ $128, BX
	DECQ DX
	JNZ  word
	ADDQ $4, R9
	DECQ CX
	JNZ  row
	VZEROUPPER
	RET

// func floatsAVX2(dst *float32, src *int32, unit float32, eights int)
TEXT ·floatsAVX2(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	VBROADCASTSS unit+16(FP), Y0
	MOVQ         eights+24(FP), CX

eight:
	VCVTDQ2PS (SI), Y1
	VMULPS    Y0, Y1, Y1
	VMOVUPS   Y1, (DI)
	ADDQ      $32, SI
	ADDQ      $32, DI
	DECQ      CX
	JNZ       eight
	VZEROUPPER
	RET
