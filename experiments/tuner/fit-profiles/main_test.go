package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The choices on a small measurement: layers multiplied, the longer of two series kept,
// peaks of the nearest model only at the measured length, Gavel's physical one-GPU rows, Sailor's unsharded layers.
func TestRun(t *testing.T) {
	data, out := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"cephalo/model_stats.csv": "model,num_layers,total_parameters\ndeepspeedllama_tiny,22,1331783680\n",
		"cephalo/layer_latency.csv": "model,gpu,seq_len,dtype,micro_batch,layer_fwd_ms,layer_bwd_ms,source\n" +
			"deepspeedllama_tiny,t4,512,float16,1,1,2,zorse\ndeepspeedllama_tiny,t4,512,float16,1,2,3,cephalo\n" +
			"deepspeedllama_tiny,t4,512,float16,2,4,6,cephalo\ndeepspeedllama_tiny,t4,512,float16,2,4,8,cephalo\n" +
			"deepspeedllama_tiny,t4,1024,float16,1,9,1,zorse\ndeepspeedgpt_test,t4,512,float32,1,1,1,cephalo\n",
		"cephalo/peak_memory_gib.csv": "cluster,model,parameters,dtype,micro_batch,peak_minus_state_gib\n" +
			"far,deepspeedllama_tiny,1057039872,float16,1,9\nfar,deepspeedllama_tiny,1057039872,float16,2,9\n" +
			"near,deepspeedllama_tiny,1331783680,float16,1,0.5\n",
		"gavel/gavel_isolated.csv": "device_type,model,local_batch_size,num_gpus,source,ran,step_time_s\n" +
			"k80,LM,10,1,physical,1,0.04\nk80,LM,5,1,physical,1,0.03\nk80,LM,20,1,simulation,1,9\nk80,LM,40,2,physical,1,9\n" +
			"k80,LM,80,1,physical,0,\nk80,A3C,,1,physical,1,0.2\n",
		"planner/sailor/profiles/OPT-350/RTX-3090/profile.json": `{"2": {"1": {"0": [0.25, 0.5, 9], "1": [1, 2, 9]}, "2": {"0": [9, 9, 9]}}, "4": {"2": {"0": [9, 9, 9]}}}`,
	} {
		path := filepath.Join(data, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(data, out); err != nil {
		t.Fatal(err)
	}
	const header = "device,workload,micro_batch,seconds,peak_bytes\n"
	for name, want := range map[string]string{
		"cephalo.csv": header + "t4,llama-tiny-512-fp16,1,0.11,536870912\nt4,llama-tiny-512-fp16,2,0.242,\n",
		"zorse.csv":   header + "t4,llama-tiny-1024-fp16,1,0.22,\n",
		"gavel.csv":   header + "k80,lm,5,0.03,\nk80,lm,10,0.04,\n",
		"sailor.csv":  header + "rtx-3090,opt-350m-2048-fp32,2,3.75,\n",
		"series.csv": "device,workload,source,layers,peak_source,peak_cluster,peak_measured_to\nk80,lm,gavel,1,,,0\n" +
			"rtx-3090,opt-350m-2048-fp32,sailor,0,,,0\n" +
			"t4,llama-tiny-1024-fp16,zorse,22,,,0\nt4,llama-tiny-512-fp16,cephalo,22,cephalo,near,1\n",
	} {
		if got, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
}
