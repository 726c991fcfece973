"""What races of contestants share: when a level is reached, its costs, the learning rates."""
