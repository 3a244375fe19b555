#compdef norma
# Completion of norma for zsh; made by 'norma completion zsh'.
_norma() {
  local kind
  local -a lines
  lines=("${(@f)$("${words[1]}" completion words "${(@)words[2,CURRENT]}" 2> /dev/null)}")
  kind=$lines[1]
  lines=("${(@)lines[2,-1]}")
  case $kind in
    file) compset -P '--*='; _files ;;
    folder) compset -P '--*='; _files -/ ;;
    list) compadd -S '' -- "${(@)lines%%$'\t'*}" ;;
    *) lines=("${(@)lines//:/\\:}"); lines=("${(@)lines/$'\t'/:}"); _describe word lines ;;
  esac
}
if [[ $funcstack[1] == _norma ]]; then
  _norma "$@"
else
  compdef _norma norma
fi
