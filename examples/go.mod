module evenkeel/examples

go 1.26.0

require evenkeel v0.1.0

require (
	github.com/google/renameio/v2 v2.0.2 // indirect
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/zeebo/xxh3 v1.1.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	gonum.org/v1/gonum v0.17.0 // indirect
)

replace evenkeel => ../
