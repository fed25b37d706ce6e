"""The options of trainer.py. They need no torch: `train` checks them, and answers --help, before it looks for it."""

import argparse
import os


def default_folder():
  return os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'skein', 'train')


def parse(about):
  parser = argparse.ArgumentParser(prog='tools/model/train', usage=argparse.SUPPRESS, description=about)
  parser.add_argument('--folder', default=default_folder(), help='checkpoints, logs and the tokenizer')
  parser.add_argument('--tokens', type=int, default=100_000_000, help='stop after this many training tokens')
  parser.add_argument('--seconds', type=float, default=float('inf'), help='stop after this many seconds')
  parser.add_argument('--decay', type=int, default=0, help='the rate falls to zero over this many of the last --tokens')
  parser.add_argument('--anneal', type=int, default=0, help='lower the rate to zero over this many tokens')
  parser.add_argument('--start', default='checkpoint.pt', help='the state in the folder to go on from')
  parser.add_argument('--rate', type=float, default=1.0, help='of the full learning rate')
  parser.add_argument('--stage', type=int, choices=(0, 1, 2, 3), help="the generator's stage, instead of the curriculum's")
  parser.add_argument('--save-every-s', type=float, default=120)
  parser.add_argument('--threads', type=int, default=2, help='of the step on a CPU')
  parser.add_argument('--hidden', type=int, default=256, help='shape of a new model; a checkpoint has its own')
  parser.add_argument('--layers', type=int, default=5)
  parser.add_argument('--intermediate', type=int, default=640)
  return parser.parse_args()


if __name__ == '__main__':
  parse('Trains fledgling from where the last run stopped; tools/model/README.md says how.')
