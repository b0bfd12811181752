"""Two real processes under torchrun: gradients are averaged, every parameter takes part."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from fixformer import create_model

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = create_model("fixformer_tiny", num_classes=4, num_frames=2, image_size=32, depth=1, dropout=0.0)
videos = torch.randn(2, 3, 2, 32, 32)
alone = create_model("fixformer_tiny", num_classes=4, num_frames=2, image_size=32, depth=1, dropout=0.0)
alone.load_state_dict(model.state_dict())
parallel = DistributedDataParallel(model)
parallel(videos[rank : rank + 1]).square().mean().backward()
alone(videos).square().mean().backward()
for (name, one), two in zip(model.named_parameters(), alone.parameters()):
    torch.testing.assert_close(one.grad, two.grad, msg=name)
(Path(sys.argv[1]) / f"equal_{rank}").touch()  # what both print may run together
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_gradients_of_two_processes_equal_those_of_one(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(program), str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "equal_0").exists()
    assert (tmp_path / "equal_1").exists()
