package agent

// Record is the metadata of a policy file: how the policy was trained.
type Record struct {
	Version   int         `json:"version"` // of the meaning of features and actions
	Advantage float64     `json:"advantage"`
	Low       []float32   `json:"low"`  // range of each feature in training
	High      []float32   `json:"high"` // the same
	Config    TrainConfig `json:"config"`
	Updates   int         `json:"updates"`
	First     string      `json:"first"`     // checksum of the network after the first set of updates, by which a short run of the same configuration is compared
	Return    float64     `json:"return"`    // mean own reward per round at the end of training
	Workloads []string    `json:"workloads"` // trained on
	Devices   []string    `json:"devices"`   // trained on
}

// recordVersion changes whenever the features or actions of env change their meaning.
const recordVersion = 5

// TrainConfig says how a policy is trained; package training does it and calls it Config.
// The defaults, with seed 1, train the embedded policy; each says why.
type TrainConfig struct {
	Seed uint64 `json:"seed"`
	// Steps is the number of rounds over all environments. Zero: 480,000; with 80,000 the
	// network costs more than it brings where rounds do not wait for all
	// (docs/decisions/0035-what-the-networks-may-decide.md).
	Steps int `json:"steps"`
	// Envs is the number of episodes side by side. Zero: 128; with 32, the replay held so
	// few different clusters at a time that the network chased them.
	Envs int `json:"envs"`
	// Updates is the number of gradient steps per step of all environments. Zero: 12,
	// which keeps the learner's core as busy as the actor's.
	Updates int `json:"updates"`
	// Gamma is the discount per round. Zero: 0.5; the effect of a choice shows at once,
	// and a longer horizon only adds noise.
	Gamma float64 `json:"gamma"`
	// Explore is the share of random actions of an exploring node. Zero: 0.8; rewards
	// belong to single nodes, so one node's exploration does not blur another's reward.
	Explore float64 `json:"explore"`
	// Hidden are the widths of the network's layers. Nil: 64, 64.
	Hidden []int `json:"hidden"`
}
