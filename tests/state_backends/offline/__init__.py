"""Tests of looking into checkpoints without their job."""
