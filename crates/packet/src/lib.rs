//! Frames in one mapped arena, pools and bursts.
