"""Public bugs of the class, each as a design before and after its fix; every one is a model of the reported mechanism."""
