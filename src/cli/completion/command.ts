import type { Subcommand } from '../arguments.ts'

export const SHELLS = ['bash', 'zsh', 'fish'] as const

export const completion: Subcommand = {
  name: 'completion',
  usage: 'bash | zsh | fish',
  summary: 'Prints the completion for a shell: commands, options and their values.',
  examples: [
    'echo \'eval "$(holdfast completion bash)"\' >> ~/.bashrc',
    'echo \'eval "$(holdfast completion zsh)"\' >> ~/.zshrc',
    'holdfast completion fish > ~/.config/fish/completions/holdfast.fish',
  ],
  options: {},
  firstWords: SHELLS,
  details: 'In zsh the line stands below the one with `compinit`.',
}
