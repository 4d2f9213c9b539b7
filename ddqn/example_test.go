package ddqn_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"evenkeel/ddqn"
)

// Networks in a file, with what is to be known of them.
func ExampleSave() {
	net, err := ddqn.NewNetwork(ddqn.Spec{Features: 2, Actions: 2, Objectives: 1, Hidden: []int{16}}, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		panic(err)
	}
	folder, err := os.MkdirTemp("", "ddqn-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "policy.safetensors")
	if err := ddqn.Save(path, map[string]*ddqn.Network{"nodes": net}, map[string]string{"trained_on": "levers"}); err != nil {
		panic(err)
	}
	nets, about, err := ddqn.Load(path)
	if err != nil {
		panic(err)
	}
	fmt.Println(nets["nodes"].Equal(net), about["trained_on"])
	// Output: true levers
}
