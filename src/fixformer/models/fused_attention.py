"""One attention of a block, a few frames or rows at a time, with a backward pass of linear attention.

Association needs other frames and rows; all that follows looks at one sequence at a time. Kept for the backward pass:
features of queries and keys, values, the gate's ratios and what attention returns, in the order of the sequences.

Shapes: B batch, T frames, H rows, W columns, D width, h heads, E head width; G sequences of N tokens each, R rows.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fixformer.models.attention.fixation import Fixation, Gates
from fixformer.models.attention.kinds import LinearAttention
from fixformer.models.attention.module import Attention
from fixformer.models.fused_parts import Affine, AffineGradient, Layer, add_norm_gradients, chunks, normalise
from fixformer.models.layers.residual import Branch
from fixformer.ops.kernels import IN_PLACE, KERNEL_GRADIENTS
from fixformer.ops.linear_attention import linear_attention_gradients

KEPT = 4  # tensors of a chunk beside the ratios


class FusedAttention:
    """x + attention(norm(x)); the backward pass needs linear attention."""

    def __init__(self, branch: Branch) -> None:
        body = branch.body
        assert isinstance(body, Attention)
        self.attention, self.eps, self.axis = body, branch.norm.eps, body.axis
        assert isinstance(body.fixate, Fixation)
        self.gates: Gates = body.fixate.gates()
        self.is_linear = isinstance(body.attend, LinearAttention)
        self.product_order = body.attend.product_order if isinstance(body.attend, LinearAttention) else "auto"
        self.kernel_in_place = IN_PLACE[body.kernel]
        self.layers: list[Layer] = [branch.norm, body.qkv, body.proj, *(gate.fc for gate, _ in self.gates)]

    def forward(self, weights: Sequence[Affine], x_BTHWD: Tensor, out_BTHWD: Tensor, kept: list[Tensor] | None) -> None:
        _, _, proj, *gates = weights
        qkv_3BTHWD = self._project(weights, x_BTHWD)
        for keys_or_values in qkv_3BTHWD[1:]:
            self.attention.associate.in_place(self._heads(keys_or_values))
        out_BGND = self.axis.rows(out_BTHWD)
        for part in self._chunks(qkv_3BTHWD):
            q, k, v = (self._sequences(z_BTHWD, part) for z_BTHWD in qkv_3BTHWD)
            q, k = self.kernel_in_place(q), self.kernel_in_place(k)  # nobody else needs these queries and keys
            ratios = self._ratios(gates, (q, k, v))
            y_GhNE = self.attention.attend(*_reweight(q, k, ratios), v, self.axis.grid(x_BTHWD.shape[1:4]))
            y_RD = y_GhNE.transpose(1, 2).reshape(-1, x_BTHWD.shape[-1])
            out_BGND[:, part].add_(proj.linear(y_RD).view_as(out_BGND[:, part]))
            if kept is not None:
                kept += [q, k, v, y_RD, *ratios]

    def backward(
        self,
        weights: Sequence[Affine],
        gradients: Sequence[AffineGradient],
        kept: Sequence[Tensor],
        x_BTHWD: Tensor,
        g_BTHWD: Tensor,
        g_x_BTHWD: Tensor,
    ) -> None:
        _, _, proj, *gates = weights
        _, _, g_proj, *g_gates = gradients
        g_qkv_3BTHWD = x_BTHWD.new_empty(3, *x_BTHWD.shape)
        each = KEPT + len(self.gates)
        g_BGND = self.axis.rows(g_BTHWD)
        for i, part in enumerate(self._chunks(g_qkv_3BTHWD)):
            q, k, v, y_RD, *ratios = kept[i * each : (i + 1) * each]
            g_RD = g_BGND[:, part].reshape(-1, g_BGND.shape[-1])
            g_proj.add_linear(g_RD, y_RD)
            g_y, y = (_as_sequences(rows_RD, q.shape) for rows_RD in (g_RD @ proj.weight, y_RD))
            found = linear_attention_gradients(
                *_reweight(q, k, ratios), v, y, g_y.contiguous(), product_order=self.product_order
            )
            self._add_gate_gradients(gates, g_gates, (q, k, v), ratios, found)
            self._store(g_qkv_3BTHWD, part, (q, k), found)
        for keys_or_values in g_qkv_3BTHWD[1:]:
            self.attention.associate.gradient_in_place(self._heads(keys_or_values))
        self._project_backward(weights, gradients, x_BTHWD, g_qkv_3BTHWD, g_x_BTHWD)

    def _store(self, g_3BTHWD: Tensor, part: slice, features: Sequence[Tensor], found: Sequence[Tensor]) -> None:
        """Write the gradients of a chunk of queries, keys and values, those of features through the kernel."""
        through_kernel = KERNEL_GRADIENTS[self.attention.kernel]
        g_q, g_k = (through_kernel(g, x) for g, x in zip(found, features, strict=False))
        for g_BTHWD, g_GhNE in zip(g_3BTHWD, (g_q, g_k, found[2]), strict=True):
            view_BGhNE = self._view(g_BTHWD, part)
            view_BGhNE.copy_(g_GhNE.view(view_BGhNE.shape))

    def _project(self, weights: Sequence[Affine], x_BTHWD: Tensor) -> Tensor:
        """Queries, keys and values, each contiguous."""
        norm, qkv, *_ = weights
        out_3BTHWD = x_BTHWD.new_empty(3, *x_BTHWD.shape)
        x_RD, out_3RD = x_BTHWD.flatten(0, 3), out_3BTHWD.flatten(1, 4)
        for part in chunks(len(x_RD), x_RD[0].nbytes):
            rows_RD = normalise(x_RD[part], norm, self.eps).rows_RD
            for out_RD, weight, bias in zip(out_3RD, *(both.chunk(3) for both in qkv), strict=True):
                torch.addmm(bias, rows_RD, weight.t(), out=out_RD[part])
        return out_3BTHWD

    def _project_backward(
        self,
        weights: Sequence[Affine],
        gradients: Sequence[AffineGradient],
        x_BTHWD: Tensor,
        g_3BTHWD: Tensor,
        g_x_BTHWD: Tensor,
    ) -> None:
        (norm, qkv, *_), (g_norm, g_qkv, *_) = weights, gradients
        x_RD, g_x_RD, g_3RD = x_BTHWD.flatten(0, 3), g_x_BTHWD.flatten(0, 3), g_3BTHWD.flatten(1, 4)
        for part in chunks(len(x_RD), 3 * x_RD[0].nbytes):
            normalised = normalise(x_RD[part], norm, self.eps)
            g_rows_RD = torch.zeros_like(normalised.rows_RD)
            for i, (g_RD, weight) in enumerate(zip(g_3RD, qkv.weight.chunk(3), strict=True)):
                g_qkv.part(i, 3).add_linear(g_RD[part], normalised.rows_RD)
                g_rows_RD.addmm_(g_RD[part], weight)
            add_norm_gradients(g_rows_RD, x_RD[part], normalised, norm, g_norm, g_x_RD[part])

    def _ratios(self, gates: Sequence[Affine], qkv: Sequence[Tensor]) -> list[Tensor]:
        return [
            gate.ratio(*layer, [qkv[i] for i in seen]) for (gate, seen), layer in zip(self.gates, gates, strict=True)
        ]

    def _add_gate_gradients(
        self,
        gates: Sequence[Affine],
        g_gates: Sequence[AffineGradient],
        qkv: Sequence[Tensor],
        ratios: Sequence[Tensor],
        g_qkv: Sequence[Tensor],
    ) -> None:
        """From the gradients of the reweighted queries and keys to those of the features, in place."""
        if not ratios:
            return
        (q, k, _), (g_q, g_k, _) = qkv, g_qkv
        g_ratios = [(g_q * q).addcmul_(g_k, k)] if len(ratios) == 1 else [g_q * q, g_k * k]
        g_q.mul_(ratios[0])
        g_k.mul_(ratios[-1])
        for i, (gate, seen) in enumerate(self.gates):
            g_z_RE = torch.ops.aten.sigmoid_backward(g_ratios[i], ratios[i]).view(-1, q.shape[-1])
            gate.add_gradients(
                g_z_RE, gates[i].weight, g_gates[i].weight, [qkv[j] for j in seen], [g_qkv[j] for j in seen]
            )
            g_gates[i].add_bias(g_z_RE)

    def _chunks(self, qkv_3BTHWD: Tensor) -> Iterator[slice]:
        # Beside q, k and v there are the features and what is made of them, so twice their width is counted.
        B, G, N, D = self.axis.rows(qkv_3BTHWD[0]).shape
        return chunks(G, 6 * B * N * D * qkv_3BTHWD.element_size())

    def _heads(self, x_BTHWD: Tensor) -> Tensor:
        return x_BTHWD.unflatten(-1, (self.attention.heads, -1))

    def _sequences(self, x_BTHWD: Tensor, part: slice) -> Tensor:
        """Those of a chunk; contiguous for our own attention, whose products would copy them more than once."""
        x_GhNE = self._view(x_BTHWD, part).flatten(0, 1)
        return x_GhNE.contiguous() if self.is_linear else x_GhNE

    def _view(self, x_BTHWD: Tensor, part: slice) -> Tensor:
        """`[B, G, h, N, E]` of a chunk."""
        return self._heads(self.axis.rows(x_BTHWD)[:, part]).transpose(2, 3)


def _as_sequences(x_RD: Tensor, size_GhNE: Sequence[int]) -> Tensor:
    G, h, N, E = size_GhNE
    return x_RD.view(G, N, h, E).transpose(1, 2)


def _reweight(q: Tensor, k: Tensor, ratios: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    return (q * ratios[0], k * ratios[-1]) if ratios else (q, k)
