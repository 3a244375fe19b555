The script of a sweep over norms; lab/report/section.h says how it is filled.
{{=script}}
# Share of the copy rate against the size of the input, from results.csv: gnuplot share.gp
set datafile separator ','
set logscale x
set xlabel 'MB of the input'
set ylabel 'share of the copy rate, %'
set yrange [0:150]
set grid
set key outside right
pick(norm, dtype, format, pass) = strcol(1) eq norm && strcol(4) eq dtype && strcol(5) eq format && strcol(6) eq pass && strcol(2) eq 'images' ? column(7) / 1e6 : NaN
{{#dtypes}}
set terminal pngcairo size 1500,1000
set output 'share-{{{dtype}}}.png'
set multiplot layout 2,{{formats}}
{{#plots}}set title '{{{dtype}}} {{{format}}} {{{pass}}}' noenhanced
plot [0.001:100] 70 with lines dashtype 2 linecolor 'gray' title '70 %'{{#norms}}, \
  'results.csv' using (pick('{{{norm}}}', '{{{dtype}}}', '{{{format}}}', '{{{pass}}}')):(100 * column(11)) with points pointtype 7 pointsize 0.6 linecolor {{color}} title '{{{norm}}}' noenhanced{{/norms}}
{{/plots}}unset multiplot
{{/dtypes}}{{=end}}
