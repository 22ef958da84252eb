"""Recipes: operators and ready expressions that an experiment imports."""
