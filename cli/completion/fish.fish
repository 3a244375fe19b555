# Completion of norma for fish; made by 'norma completion fish'.
function _norma_words
  set -l words (commandline -opc) (commandline -ct)
  set -l lines ($words[1] completion words $words[2..-1] 2> /dev/null)
  switch "$lines[1]"
    case file
      __fish_complete_path (commandline -ct)
    case folder
      __fish_complete_directories (commandline -ct)
    case '*'
      string join \n -- $lines[2..-1]
  end
end
complete -c norma -f -a '(_norma_words)'
