# Completion of norma for bash; made by 'norma completion bash'.
_norma() {
  local kind='' cur=${COMP_WORDS[COMP_CWORD]}
  if [[ $cur == '=' ]]; then cur=''; fi
  COMPREPLY=()
  { read -r kind; mapfile -t COMPREPLY; } < \
    <("${COMP_WORDS[0]}" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
  COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
  case $kind in
    file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    folder) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    list) compopt -o nospace 2> /dev/null ;;
  esac
  if [[ $kind == file || $kind == folder ]]; then compopt -o filenames 2> /dev/null; fi
}
complete -F _norma norma
