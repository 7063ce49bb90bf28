"""The rules that every log with transactions keeps."""
