"""File suffixes by which videos and images are recognised."""

VIDEO_SUFFIXES = frozenset(
    [
        *(".mp4", ".webm", ".mkv", ".avi", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv"),
        *(".ts", ".mts", ".m2ts", ".3gp", ".ogv", ".gif", ".vob", ".mp2v", ".y4m", ".asf", ".3g2", ".mpe", ".m2v"),
        *(".mxf", ".nut", ".ivf", ".dv", ".rm", ".rmvb", ".f4v", ".mj2", ".ogm", ".divx", ".mjpeg", ".h264", ".hevc"),
    ]
)
IMAGE_SUFFIXES = frozenset([".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"])
