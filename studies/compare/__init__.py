"""How well a comparison of two runs finds the step at which one of them was disturbed."""
