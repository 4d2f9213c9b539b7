//go:build openblas && !cgo

package matrix

// Scratch is as in product.go.
type Scratch struct{}

// product exists to make the compiler's one error say what is missing: the tag openblas needs cgo and a C compiler.
func product(_, _, _ Matrix, _ start, _ float32, _ *Scratch) {
	the_tag_openblas_needs_CGO_ENABLED_1()
}
