"""REINFORCE of tic-tac-toe with a learned baseline, against an older copy of itself: as soon as that loses often, it is
replaced, and what was gained is lost."""

import copy
from typing import Any

import torch
from torch import nn

import rmetric

GAMES = 64
LINES = torch.tensor([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])


class Player(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(18, 64), nn.Linear(64, 64)
        self.pi, self.v = nn.Linear(64, 9), nn.Linear(64, 1)

    def forward(self, board):
        x = torch.cat([board == 1, board == -1], 1).float()
        h = torch.relu(self.l2(torch.relu(self.l1(x))))
        return self.pi(h).masked_fill(board != 0, -1e9), self.v(h).squeeze(1)


def has_line(board, player):
    return (board[:, LINES] == player).all(2).any(1)


def play(player, opponent):
    """Boards, moves and games of the player; each game's result, 1 for a win. Every second game the opponent begins."""
    board, result = torch.zeros(GAMES, 9), torch.zeros(GAMES)
    live, game = torch.ones(GAMES, dtype=torch.bool), torch.arange(GAMES)
    boards, moves, games = [], [], []
    for turn in range(10):
        mine = (game % 2 == 0) == (turn % 2 == 0)
        with torch.no_grad():
            logits = torch.where(mine[:, None], player(board)[0], opponent(-board)[0])
        logits[~live] = 0
        move = torch.distributions.Categorical(logits=logits).sample()
        own = live & mine
        boards.append(board[own])
        moves.append(move[own])
        games.append(game[own])
        after = board.clone()
        after[game, move] = torch.where(mine, 1.0, -1.0)
        board = torch.where(live[:, None], after, board)
        result[live & has_line(board, 1)] = 1
        result[live & has_line(board, -1)] = -1
        live = live & (result == 0) & (board == 0).any(1)
        if not live.any():
            break
    return torch.cat(boards), torch.cat(moves), torch.cat(games), result


def train(steps: int, seed: int, **watch: Any) -> None:
    torch.manual_seed(seed)
    player = Player()
    opponent = copy.deepcopy(player)
    opt = torch.optim.Adam(player.parameters(), lr=1e-3)
    won_lately = 0.0
    with rmetric.TrainingMonitor(player, opt, **watch) as monitor:
        for _ in range(steps):
            boards, moves, games, result = play(player, opponent)
            monitor.reward(result.mean())
            gain = result[games]
            logits, v = player(boards)
            dist = torch.distributions.Categorical(logits=logits)
            policy = -(dist.log_prob(moves) * (gain - v.detach())).mean()
            loss = policy + 0.5 * (gain - v).pow(2).mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            monitor.step(loss)
            nn.utils.clip_grad_norm_(player.parameters(), 1.0)
            opt.step()
            won_lately = 0.9 * won_lately + 0.1 * float(result.mean())
            if won_lately > 0.2:
                opponent.load_state_dict(player.state_dict())
                won_lately = 0.0
