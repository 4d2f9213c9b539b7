package main

type exportCmd struct{}

func (*exportCmd) Run(*app) error { return nil }
