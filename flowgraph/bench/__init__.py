"""Comparing solvers: registered ones and packaged peers, side by side on real and generated graphs."""
