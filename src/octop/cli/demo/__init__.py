"""`octop demo`: a private PostgreSQL, a real worker, and one task of every kind, watched live and checked."""
