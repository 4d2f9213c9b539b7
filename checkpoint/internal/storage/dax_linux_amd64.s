#include "textflag.h"

// func storePast(dst, src unsafe.Pointer, n int)
TEXT ·storePast(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	TESTQ $15, DI
	JNZ  words
lines:
	CMPQ CX, $64
	JLT  words
	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVNTO X0, (DI)
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	JMP  lines
words:
	CMPQ CX, $8
	JLT  done
	MOVQ (SI), AX
	MOVNTIQ AX, (DI)
	ADDQ $8, SI
	ADDQ $8, DI
	SUBQ $8, CX
	JMP  words
done:
	SFENCE // here, where no other core can take over: a fence orders its own core's stores only
	RET

// func storeFence()
TEXT ·storeFence(SB), NOSPLIT, $0-0
	SFENCE
	RET
