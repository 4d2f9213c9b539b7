package bucket

import _ "embed"

//go:embed plan.schema.json
var planSchema []byte

// PlanSchema is the JSON schema of a plan file.
func PlanSchema() []byte { return planSchema }
