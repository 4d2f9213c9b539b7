//go:build openblas && !cgo

package ddqn

type padding struct{}

// gemm exists to make the compiler's one error say what is missing: the tag openblas needs cgo and a C compiler.
func gemm(_ []float32, _, _, _ int, _ matrix, _, _ []float32, _ float32, _ *padding) {
	the_tag_openblas_needs_CGO_ENABLED_1()
}
